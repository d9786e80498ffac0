"""The program: command line, server, wire protocols, clients, simulator and benches."""
