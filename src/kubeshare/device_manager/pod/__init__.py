"""The life of a plain pod that shares a GPU, after its scheduling gate is removed."""
