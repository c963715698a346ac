"""The pure core: GPUs, their holders, and placement of demands.

Nothing here reads a file, a clock, a random number or the network, so every entry point (the
cluster's programs, ``kubeshare plan``, ``kubeshare explain``) gives the same answer to the same
question. The main path:

``units`` → ``demand``, ``ledger.holder``, ``ledger.device`` → ``ledger`` → ``policies`` →
``decision``

Around any policy: ``quota`` limits it, ``gang`` places several demands together, ``simulation``
retries pending demands, ``diagnosis`` explains what would have to change, ``preemption`` selects
the holders to evict. Apart from placement: ``pool`` decides how many idle vGPUs a node keeps,
``topology`` models the links between GPUs, ``token`` shares out the time of a GPU.

Amounts are integers: *micros* (millionths of a GPU's compute) and bytes.
"""
