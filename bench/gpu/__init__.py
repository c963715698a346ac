"""The numbers of a machine with a GPU: figures 5, 6, 7 and 12 of the paper, and more.

``python -m bench.gpu``: one command, at most nine minutes, no cluster and no
root: every client is a process under ``kubeshare run``. It needs the driver
alone; where PyTorch is installed a training job runs too. ``--fake V100x1``
plays all of it on the fake GPU, which is how the script itself is tested.
"""
