# Three cards of different kinds: two models, one of which with two sizes of memory.
model = V100-PCIE
count = 3
model.2 = V100
name.1 = Tesla V100-PCIE-32GB
memory.1 = 32768
link = PHB
