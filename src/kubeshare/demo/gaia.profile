# The node of the Gaia paper: two pairs of GPUs below different sockets, the second pair below one PCIe
# switch, the first below several.
model = V100-PCIE
count = 4
link = SYS
pci.0.1 = PXB
pci.2.3 = PIX
