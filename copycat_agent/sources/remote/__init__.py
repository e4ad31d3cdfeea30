"""Files behind URIs: object stores and HDFS, through pyarrow's file systems. Read once and whole, by runs to the end."""
