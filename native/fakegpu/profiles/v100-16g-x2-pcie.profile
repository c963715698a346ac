# Two V100 cards, each below the other socket: their traffic crosses the link between sockets.
model = V100-PCIE
count = 2
link = SYS
numa.0 = 0
numa.1 = 1
