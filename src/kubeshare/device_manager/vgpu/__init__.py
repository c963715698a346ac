"""The life of a vGPU: activation, health, holders, deletion."""
