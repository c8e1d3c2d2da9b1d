"""The source type `spark`: results of streaming queries that run in a Spark driver beside the gateway.

Two processes share this package. The gateway's side is `kiwi_spark.plugin` and what it imports (Trio, no
PySpark); the other is `kiwi_spark.driver` (PySpark, no Trio). Both speak `kiwi_spark.wire` about the values
of `kiwi_spark.spec`. So nothing is imported here.
"""
