# Eight Tesla P4 below two sockets, with every PCI path that there is: on the first socket a switch
# with two GPUs, a third below the next switch, and a fourth at a host bridge of its own; on the
# second two switches with two GPUs each, at host bridges of their own.
model = V100-PCIE
count = 8
name = Tesla P4
memory = 8192
link = SYS
link.0.1 = PIX
link.0.2 = PXB
link.1.2 = PXB
link.0.3 = PHB
link.1.3 = PHB
link.2.3 = PHB
link.4.5 = PIX
link.6.7 = PIX
link.4.6 = NODE
link.4.7 = NODE
link.5.6 = NODE
link.5.7 = NODE
numa.4 = 1
numa.5 = 1
numa.6 = 1
numa.7 = 1
cpus.0 = 0-13,28-41
cpus.1 = 14-27,42-55
