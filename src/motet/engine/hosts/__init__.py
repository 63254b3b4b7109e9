"""A run over several processes, one a host: what travels between them, what each of them does, and who leads them."""
