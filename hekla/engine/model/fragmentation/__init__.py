"""How much of what is free the pods that come cannot use: the mix of their shapes, and the measure."""
