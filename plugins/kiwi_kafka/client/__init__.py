"""Kafka's clients on Trio's sockets, behind `kiwi_kafka.ports`; aiokafka knows requests and records."""
