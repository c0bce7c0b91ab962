"""`aiayn doctor`: checks of the machine, one finding each."""
