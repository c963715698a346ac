"""The figures, tables and claims of the KubeShare paper (HPDC '20)."""
