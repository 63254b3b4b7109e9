"""Everything that leans on private parts of JAX or XLA, to compute faster on CPUs.

Each trick is behind one function of one module here, loaded when it is first wanted, with a way that takes public JAX
alone beside it: an upgrade of JAX may cost speed, never correctness. `MOTET_PLAIN_JAX=1` in the environment, or
`with plain():`, turns all of them off.

| module | what it saves | without it |
| --- | --- | --- |
| `callback` | a program asks host environments in 5 us | JAX's own `io_callback`, 120 us |
| `clone` | replicas on other devices load what the first one compiled | each compiles for itself |
| `hashes` | a random number's hash is one operation | JAX's loop of several |
| `products` | a layer's gradient takes 70 us instead of 170 | Eigen, as XLA calls it |
| `options` | how XLA orders and splits small operations | its own choice |
| `prepare` | computing in the thread that asks | JAX hands over to a thread of its own |
"""

from motet.engine.cpu.switch import enabled, plain

__all__ = ["enabled", "plain"]
