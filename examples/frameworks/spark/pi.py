import random

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("pi").getOrCreate()
parts, tries = 4, 50_000


def inside(part):
    chance = random.Random(part)
    return sum(chance.random() ** 2 + chance.random() ** 2 < 1 for _ in range(tries))


found = spark.sparkContext.parallelize(range(parts), parts).map(inside).sum()
print(f"pi is roughly {4 * found / (parts * tries):.2f}", flush=True)
spark.stop()
