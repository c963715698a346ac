"""The token daemon of one machine, its files and its protocol.

A grant file (`files`) says which GPUs a claim may use. For each grant the daemon
(`daemon`) opens a session (`session`): a folder with a page and a socket, which
containers see. It hands out each GPU's time token to the processes that connect to that
socket. `native/include/kubeshare_wire.h` defines the page and the messages (`wire`).
A process is identified by the socket alone; the daemon does not believe what a process
claims to be.
"""
