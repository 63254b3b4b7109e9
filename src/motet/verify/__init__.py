"""Whether an algorithm keeps the rules that let plans cut it: run whole and in pieces, method by method."""
