"""The command `extproc`, one file per subcommand.

Belongs here: arguments, what is printed, exit codes (0 done, 1 could not, 2 wrong use or wrong config), and
the child processes of `up`. Forbidden: rules and protocol.
"""
