#!/bin/sh
# What Spark's own image does when it starts: the driver submits itself, an executor asks its driver for work.
set -e
home=$(python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
export SPARK_HOME="$home"
role=$1
case $role in
driver)
  shift
  exec "$home/bin/spark-submit" --deploy-mode client --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
  ;;
executor)
  set -- -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" -cp "$home/jars/*:$SPARK_CONF_DIR"
  number=0
  while option=$(printenv "SPARK_JAVA_OPT_$number"); do
    set -- "$@" "$option"
    number=$((number + 1))
  done
  exec java "$@" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
*) exec "$@" ;;
esac
