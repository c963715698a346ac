# Four V100 of an SXM2 board: every pair joined by two NVLinks, a PCI switch for each two GPUs,
# and a socket for each switch.
model = V100
count = 4
link = NV2
pci.0.1 = PIX
pci.2.3 = PIX
numa.0 = 0
numa.1 = 0
numa.2 = 1
numa.3 = 1
