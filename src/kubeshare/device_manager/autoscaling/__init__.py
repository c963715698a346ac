"""Shows cluster autoscalers the demand for which no node has a GPU."""
