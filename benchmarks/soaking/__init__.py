"""What soak.py has its processes do, and what it checks in the end."""
