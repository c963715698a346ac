"""What may go wrong at each single write of a life, and that it comes right all the same.

A *life* is a story of SharePods from the first to the last. It is told once without
trouble, which says how many writes it has; then once more for every write and every
*trouble*: the program that wrote is killed, the API server is killed, the answer is
lost, the write comes late, … Each such telling is a *point*.

``python -m robustness.fault_matrix [LIFE [TROUBLE [WRITE]]] [--seed N] [--seeds N]`` tells some of
them, or all. What is random in a telling follows from its seed, so one that went wrong
can be told again; ``--seeds`` looks where chance would have fallen otherwise.
"""
