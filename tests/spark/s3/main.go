// A server with the interface of S3, in memory, on loopback; prints its port. Its bucket is `events`.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

func main() {
	backend := s3mem.New()
	if err := backend.CreateBucket("events"); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(http.Serve(listener, gofakes3.New(backend).Server()))
}
