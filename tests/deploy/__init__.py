"""What Hekla is installed with: the chart, the manifests made from it, and whether what they give
and ask for is enough and true."""
