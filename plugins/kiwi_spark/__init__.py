"""The source type `spark`: results of streaming queries that run in a Spark driver beside the gateway.

Two processes share this package, and a test of imports keeps its folders apart:

    plugin.py   the hooks: what the gateway loads
    gateway/    runs in the gateway (Trio, no PySpark)
    driver/     runs in the Spark driver (PySpark, no Trio)
    protocol/   what they say to each other (neither)
    java/       the Java runtime and the jars that both Spark and the demo's broker need
    jvm/        Java: our own classes in the driver's JVM, which java/classes.py has compiled

Nothing is imported here.
"""
