"""Several processes that share one gateway's addresses: who starts them, and what each of them learns."""
