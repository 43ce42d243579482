"""The PySpark side of BraidMQ: jobs that read and write the same files the brokers do."""
