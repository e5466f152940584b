"""Showing traces: their tree with what each span did by itself, in windows however large they are, and two compared."""
