"""What may go wrong at each single write of a life, and that it comes right all the same.

A *life* is a story of SharePods from the first to the last. It is told once without
trouble, which says how many writes it has; then once more for every write and every
*trouble*: the program that wrote is killed, the API server is killed, the answer is
lost, the write comes late, … Each such telling is a *point*.

``python -m surviving [LIFE [TROUBLE [WRITE]]]`` tells some of them, or all.
"""
