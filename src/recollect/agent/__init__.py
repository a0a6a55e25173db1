"""Agents: two branches of encoder, memory and head, and the player that acts with them."""
