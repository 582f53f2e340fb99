"""The kinds of policy, a network and its loss on one page each."""
