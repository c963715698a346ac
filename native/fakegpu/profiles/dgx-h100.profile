# A DGX H100: NVSwitches join every pair with eighteen NVLinks; four GPUs at each socket.
model = V100
count = 8
name = NVIDIA H100 80GB HBM3
memory = 81920
link = NV18
nvswitch = 1
numa.4 = 1
numa.5 = 1
numa.6 = 1
numa.7 = 1
cpus.0 = 0-55,112-167
cpus.1 = 56-111,168-223
