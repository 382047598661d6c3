// The kubelet's own Go client of PodResources v1, as a program: it prints the answers about all pods, and about one.
//
// Build it in a Kubernetes tree, where its client and the vendored modules are:
// go build -mod=vendor -overlay overlay.json -o pod-resources-client ./cmd/pod-resources-client
// with {"Replace": {"TREE/cmd/pod-resources-client/main.go": "THIS FILE"}} in overlay.json.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesclient "k8s.io/kubernetes/pkg/kubelet/apis/podresources"
)

const timeout = 5 * time.Second

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(socket, namespace, name string) error {
	client, connection, err := podresourcesclient.GetV1Client("unix://"+socket, timeout, 16<<20)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	listed, err := client.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return fmt.Errorf("List: %w", err)
	}
	allocatable, err := client.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return fmt.Errorf("GetAllocatableResources: %w", err)
	}
	pod, err := client.Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: namespace, PodName: name})
	if err != nil {
		return fmt.Errorf("Get: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"list": listed, "allocatable": allocatable, "get": pod,
	})
}
