"""How fillmask is run: the command line, one machine under a supervisor, containers. Only this part starts others."""
