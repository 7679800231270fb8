-- The history of this month and the next three has its partitions before the first row comes.
SELECT supervisor.make_partitions(3);
