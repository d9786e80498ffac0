"""The program: command line, configuration, wire protocols, server, clients and benches."""
