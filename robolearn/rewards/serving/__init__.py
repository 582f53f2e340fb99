"""One reward model in a process of its own, for several others: messages, service, client."""
