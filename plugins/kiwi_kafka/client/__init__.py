"""Kafka's clients: aiokafka on an asyncio loop inside Trio's thread, behind `kiwi_kafka.ports`."""
