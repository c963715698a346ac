"""Gives up decisions that cannot be carried out, so that they are made anew."""
