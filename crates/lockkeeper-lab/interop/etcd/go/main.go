// A peer that locks with Go's concurrency package; the orders are told in src/interop/mod.rs.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type held struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func main() {
	hosts := strings.Split(strings.TrimPrefix(os.Args[1], "etcd://"), ",")
	config := clientv3.Config{Endpoints: hosts, DialTimeout: 5 * time.Second}
	client, err := clientv3.New(config)
	if err != nil {
		fmt.Println("error", err)
		return
	}
	fmt.Println("ready")
	locks := map[string]held{}
	orders := bufio.NewScanner(os.Stdin)
	go func() {
		// A pipe that was closed ends a peer that waits for a lock, too.
		for os.Getppid() != 1 {
			time.Sleep(time.Second)
		}
		os.Exit(0)
	}()
	for orders.Scan() {
		words := strings.Fields(orders.Text())
		if len(words) == 0 || words[0] == "quit" {
			return
		}
		answer, err := obey(client, locks, words)
		if err != nil {
			fmt.Println("error", err)
		} else {
			fmt.Println(answer)
		}
	}
}

func obey(client *clientv3.Client, locks map[string]held, words []string) (string, error) {
	name := words[1]
	if words[0] == "unlock" {
		lock, ok := locks[name]
		if !ok {
			return "not-held", nil
		}
		delete(locks, name)
		select {
		case <-lock.session.Done():
			return "not-held", nil
		default:
		}
		if err := lock.mutex.Unlock(context.Background()); err != nil {
			return "", err
		}
		return "unlocked", lock.session.Close()
	}
	millis, err := strconv.Atoi(words[2])
	if err != nil {
		return "", err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL((millis+999)/1000))
	if err != nil {
		return "", err
	}
	mutex := concurrency.NewMutex(session, name)
	if words[0] == "lock" {
		err = mutex.Lock(context.Background())
	} else {
		err = mutex.TryLock(context.Background())
	}
	if err == concurrency.ErrLocked {
		return "busy", session.Close()
	}
	if err != nil {
		return "", err
	}
	locks[name] = held{session, mutex}
	return "held", nil
}
