"""The token daemon of one machine, and the files by which others speak with it.

Whoever may use a GPU is written in a grant file (`files`); the daemon makes
that claim's folder with a page and a socket (`claim`), and hands out each
GPU's time token to the processes that come in by that socket (`daemon`). The
page and the messages are those of `native/include/kubeshare_wire.h` (`wire`).
Who speaks is known from the socket alone; nothing a process says about itself
is believed.
"""
