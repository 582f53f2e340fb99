"""The human in the loop: a policy learns on an arm while a person watches, takes over, and hands back."""
