"""The core: what a GPU is, who holds it, and where the next demand goes.

Everything here is pure. Nothing reads a file, a clock, a random number or the
network, so that every door (the cluster's programs, ``kubeshare plan``, ``kubeshare
explain``) gives the same answer to the same question. The way through:

``units`` → ``demand``, ``device`` → ``ledger`` → ``policies`` → ``decision``

Around a policy, whichever it is: ``quota`` and ``namespace_quota`` keep it within bounds,
``gang`` places several demands together, ``queue`` tries again who waits, ``explain`` says
whose leaving would help, ``preemption`` who is asked to leave, ``growth`` whether another
node would. Apart from placement: ``pool`` counts the vGPUs that are kept idle, ``cpus``
picks processors near a GPU, ``token`` hands out a GPU's time, ``fair_share`` says what
that should come to.

Numbers are integers: *micros* (millionths of a GPU's compute) and bytes.
"""
