// Command clients does with client-go what controllers and operators do, and prints one line for each thing that went well.
// Its arguments are a kubeconfig, a namespace and a pod that runs a shell and answers HTTP at port 8124.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

type story struct {
	config    *rest.Config
	client    *kubernetes.Clientset
	namespace string
	pod       string
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	must(err)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	must(err)
	told := story{config, client, os.Args[2], os.Args[3]}
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"typed", told.typed}, {"openapi", told.openapi}, {"informer", told.informer}, {"leader", told.leader}, {"exec spdy", told.execSPDY},
		{"exec websocket", told.execWebSocket}, {"forward spdy", told.forwardSPDY}, {"forward websocket", told.forwardWebSocket},
	} {
		if err := part.run(ctx); err != nil {
			log.Fatalf("%s: %v", part.name, err)
		}
		fmt.Println("ok", part.name)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// openapi reads the schemas of version 2, which come as protobuf, and finds a kind among them.
func (s story) openapi(context.Context) error {
	document, err := s.client.Discovery().OpenAPISchema()
	if err != nil {
		return err
	}
	kinds := 0
	for _, definition := range document.GetDefinitions().GetAdditionalProperties() {
		for _, extension := range definition.GetValue().GetVendorExtension() {
			if extension.GetName() == "x-kubernetes-group-version-kind" {
				kinds++
			}
		}
		if strings.HasSuffix(definition.GetName(), ".apps.v1.DeploymentSpec") && definition.GetValue().GetProperties() == nil {
			return errors.New("a deployment's spec has no properties")
		}
	}
	if kinds < 50 || len(document.GetPaths().GetPath()) < 50 {
		return fmt.Errorf("%d kinds and %d paths are described", kinds, len(document.GetPaths().GetPath()))
	}
	return nil
}

// typed writes, reads and changes objects with protobuf bodies.
func (s story) typed(ctx context.Context) error {
	maps := s.client.CoreV1().ConfigMaps(s.namespace)
	made, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "typed"}, Data: map[string]string{"a": "1"}}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	made.Data["b"] = "2"
	if made, err = maps.Update(ctx, made, meta.UpdateOptions{}); err != nil {
		return err
	}
	if made, err = maps.Patch(ctx, "typed", types.StrategicMergePatchType, []byte(`{"data":{"a":null}}`), meta.PatchOptions{}); err != nil {
		return err
	}
	if len(made.Data) != 1 || made.Data["b"] != "2" {
		return fmt.Errorf("the data are %v", made.Data)
	}
	return maps.Delete(ctx, "typed", meta.DeleteOptions{})
}

// informer hears of an object that was there and of one that comes, and of its end.
func (s story) informer(ctx context.Context) error {
	maps := s.client.CoreV1().ConfigMaps(s.namespace)
	if _, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "before"}}, meta.CreateOptions{}); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithNamespace(s.namespace))
	heard := make(chan string, 100)
	informer := factory.Core().V1().ConfigMaps().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { heard <- "+" + object.(*core.ConfigMap).Name },
		DeleteFunc: func(object any) { heard <- "-" + object.(*core.ConfigMap).Name },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return errors.New("the cache did not fill")
	}
	if _, err := maps.Create(ctx, &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "after"}}, meta.CreateOptions{}); err != nil {
		return err
	}
	if err := maps.Delete(ctx, "after", meta.DeleteOptions{}); err != nil {
		return err
	}
	wanted := map[string]bool{"+before": true, "+after": true, "-after": true}
	for len(wanted) > 0 {
		select {
		case word := <-heard:
			delete(wanted, word)
		case <-ctx.Done():
			return fmt.Errorf("never heard of %v", wanted)
		}
	}
	return nil
}

// renewals calls the leader off within the answer to a renewal. A leader who is called off while one is on its way
// may not know the lease that the server has since stored, and then can't give it back.
type renewals struct {
	resourcelock.Interface
	callOff func()
}

func (r renewals) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := r.Interface.Update(ctx, record)
	if err == nil {
		r.callOff()
	}
	return err
}

// leader is elected, renews the lease and gives it back.
func (s story) leader(ctx context.Context) error {
	leading, cancel := context.WithCancel(ctx)
	defer cancel()
	lock := renewals{callOff: cancel, Interface: &resourcelock.LeaseLock{
		LeaseMeta: meta.ObjectMeta{Name: "go-leader", Namespace: s.namespace}, Client: s.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "gopher"},
	}}
	led := make(chan struct{})
	leaderelection.RunOrDie(leading, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(led) }, OnStoppedLeading: func() {},
		},
	})
	select {
	case <-led: // told by a goroutine of its own, perhaps only now
	case <-ctx.Done():
		return errors.New("never led")
	}
	var lease *coordination.Lease
	lease, err := s.client.CoordinationV1().Leases(s.namespace).Get(ctx, "go-leader", meta.GetOptions{})
	if err != nil {
		return err
	}
	if *lease.Spec.HolderIdentity != "" {
		return fmt.Errorf("the holder is %q", *lease.Spec.HolderIdentity)
	}
	return nil
}

func (s story) execURL(tty bool, command ...string) *url.URL {
	options := &core.PodExecOptions{Command: command, Stdin: true, Stdout: true, Stderr: true, TTY: tty}
	request := s.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.namespace).Name(s.pod).SubResource("exec")
	return request.VersionedParams(options, scheme.ParameterCodec).URL()
}

// talk sends a megabyte through a command and wants its exit code.
func talk(ctx context.Context, executor remotecommand.Executor) error {
	sent := strings.Repeat("0123456789abcdef", 1<<16)
	var out, errs bytes.Buffer
	err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(sent), Stdout: &out, Stderr: &errs})
	var code exec.CodeExitError
	if !errors.As(err, &code) || code.Code != 6 {
		return fmt.Errorf("the end was %v, not exit code 6", err)
	}
	if out.String() != sent || errs.String() != "done\n" {
		return fmt.Errorf("%d bytes came back, and %q", out.Len(), errs.String())
	}
	return nil
}

func (s story) execSPDY(ctx context.Context) error {
	executor, err := remotecommand.NewSPDYExecutor(s.config, "POST", s.execURL(false, "sh", "-c", "cat; echo done >&2; exit 6"))
	if err != nil {
		return err
	}
	return talk(ctx, executor)
}

func (s story) execWebSocket(ctx context.Context) error {
	executor, err := remotecommand.NewWebSocketExecutor(s.config, "GET", s.execURL(false, "sh", "-c", "cat; echo done >&2; exit 6").String())
	if err != nil {
		return err
	}
	return talk(ctx, executor)
}

func (s story) forwardURL() *url.URL {
	return s.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(s.namespace).Name(s.pod).SubResource("portforward").URL()
}

func (s story) forwardSPDY(ctx context.Context) error {
	transport, upgrader, err := spdy.RoundTripperFor(s.config)
	if err != nil {
		return err
	}
	return get(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", s.forwardURL()))
}

func (s story) forwardWebSocket(ctx context.Context) error {
	dialer, err := portforward.NewSPDYOverWebsocketDialer(s.forwardURL(), s.config)
	if err != nil {
		return err
	}
	return get(dialer)
}

// get asks the pod's server through a forwarded port, several times at once.
func get(dialer interface {
	Dial(protocols ...string) (httpstream.Connection, string, error)
}) error {
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	forwarder, err := portforward.New(dialer, []string{"0:8124"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return err
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return err
	}
	answers := make(chan error, 8)
	for range cap(answers) {
		go func() {
			transport := &http.Transport{DisableKeepAlives: true}
			answer, err := (&http.Client{Transport: transport}).Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
			if err != nil {
				answers <- err
				return
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err == nil && string(body) != "hello" {
				err = fmt.Errorf("the answer was %q", body)
			}
			answers <- err
		}()
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			return err
		}
	}
	return nil
}
