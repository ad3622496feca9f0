"""What links can do in theory: three ceilings, and why."""
